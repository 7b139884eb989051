"""Pictures drawn on the server as SVG. Colours are classes of the style sheet; every text is escaped."""
