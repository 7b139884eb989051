"""Where the meaning is recorded: ports, statements, migrations, and the two stores behind them."""
