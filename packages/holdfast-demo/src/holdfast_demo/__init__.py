"""A small shop that shows what Holdfast promises: its worker is killed, and no order is lost or paid twice."""
