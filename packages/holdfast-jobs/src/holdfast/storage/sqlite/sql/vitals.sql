-- name: vitals
-- What the file and this connection to it say of themselves, as one document.
select json_object(
         'journal', j.journal_mode, 'synchronous', y.synchronous, 'busy_timeout', b.timeout,
         'pages', c.page_count, 'free_pages', f.freelist_count, 'page_size', s.page_size,
         'indexes', (select json_group_array(name) from sqlite_master where type = 'index'))
  from pragma_journal_mode j cross join pragma_synchronous y cross join pragma_busy_timeout b
 cross join pragma_page_count c cross join pragma_freelist_count f cross join pragma_page_size s;

-- name: dead_rows
-- A file has none that could be swept.
select 0, false;

-- name: privileges
-- A file has no roles.
select '{}';
