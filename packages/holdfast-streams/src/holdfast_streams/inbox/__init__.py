"""The inbox: messages of other systems, by webhook or from a broker's stream, each once in the database."""
