"""A whole application on one machine: what the stories of both applications share. No part of either."""
