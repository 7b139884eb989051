-- What a process declares its environment to be, so that a copy under the same path can be recognised.
alter table holdfast_identity add column environment text;
