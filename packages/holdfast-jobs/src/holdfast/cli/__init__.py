"""The command line: one module per noun, loaded only when its noun is named."""
