"""The dashboard: pages rendered on the server, from the same desk that the API and the command line ask."""
