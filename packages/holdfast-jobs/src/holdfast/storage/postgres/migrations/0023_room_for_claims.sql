-- A claimed row is sixteen bytes longer than a free one. With half of each page left for them, the claimed rows of a full page had
-- no room there: every eighth went to another page, with new entries in both indexes.
alter table holdfast.queue set (fillfactor = 45);
