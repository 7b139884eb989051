-- What a worker's types say in code about their limits; workers that do not tell have none.
alter table holdfast_worker add column limits text not null default '{}';
