-- A lease that names two hundred jobs is larger than what PostgreSQL likes to keep in a row. Compressing random ids and moving
-- them aside would cost each claim more than the rest of its lease.
alter table holdfast.lease set (toast_tuple_target = 8160);
