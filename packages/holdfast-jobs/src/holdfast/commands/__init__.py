"""Every change and every question about the queue, written once: sync or async, on either database."""
