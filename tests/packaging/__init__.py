"""What is shipped: the wheel and the sdist, installed where nothing else is."""
