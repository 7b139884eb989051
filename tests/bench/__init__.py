"""The bench measures what it says it measures, on servers that people have."""
