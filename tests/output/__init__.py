"""What handlers emit."""
