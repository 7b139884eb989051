"""Real processes, real servers, real faults."""
