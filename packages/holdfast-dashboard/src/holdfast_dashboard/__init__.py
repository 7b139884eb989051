"""The dashboard: pages rendered on the server, through the same admin layer as the API and the command line."""
