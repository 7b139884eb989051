"""A small shop that shows what Holdfast promises: its worker is killed, and no order is lost or paid twice.

What runs a whole application on this machine, PostgreSQL included, serves the bench and the applications too.
"""
