-- A look at a gate answers all its wakeups: many starts of a key are one turn.
create index holdfast_wakeup_gate on holdfast_wakeup (gate, at);
