-- How soon vacuum comes to tables whose rows are short-lived, whatever their size: a share of a large backlog would be many
-- dead rows. Workers sweep them sooner still; where they may not, the server does it once a minute.
alter table holdfast.queue set (
  autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);
alter table holdfast.lease set (
  autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);
alter table holdfast.tally set (
  autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);
alter table holdfast.worker set (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
alter table holdfast.progress set (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
-- What retention removes of the large tables is their rows' space for new ones, long before a fifth of them are gone.
alter table holdfast.job set (autovacuum_vacuum_scale_factor = 0.02);
alter table holdfast.outcome set (autovacuum_vacuum_scale_factor = 0.02);
alter table holdfast.attempt set (autovacuum_vacuum_scale_factor = 0.02);
