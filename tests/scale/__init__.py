"""Scale-out, shown: services with a database each, fed by one stream of a broker of three nodes."""
