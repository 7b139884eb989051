-- name: vitals_journal
pragma journal_mode;

-- name: vitals_synchronous
pragma synchronous;

-- name: vitals_busy_timeout
pragma busy_timeout;

-- name: vitals_pages
select json_object('pages', c.page_count, 'free_pages', f.freelist_count, 'page_size', s.page_size)
  from pragma_page_count c cross join pragma_freelist_count f cross join pragma_page_size s;
