"""Service calls, and requests that wait."""
