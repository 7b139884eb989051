"""The whole application on one machine, for a first look and for the build: `make tenders`."""
