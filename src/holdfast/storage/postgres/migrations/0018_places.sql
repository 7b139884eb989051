-- By what a physical copy is recognised: it has the original's name and system identifier, but it was started at another
-- time and is reached under another address. A declared environment says it where addresses cannot.
alter table holdfast.identity
  add column started_at  timestamptz,
  add column hosts       text[],
  add column environment text;
