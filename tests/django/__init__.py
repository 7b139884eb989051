"""Holdfast in Django projects, as their developers meet it: with `manage.py`, in processes of their own."""
