-- name: replication
-- A server's part in replication. A role without pg_monitor sees that there are standbys, and nothing else of them.
select json_build_object(
  'is_standby', pg_is_in_recovery(),
  'timeline', case when pg_is_in_recovery()
                   then coalesce((select received_tli from pg_stat_wal_receiver), (select timeline_id from pg_control_checkpoint()))
                   else ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer end,
  'synchronous_standby_names', current_setting('synchronous_standby_names'),
  'synchronous_commit', current_setting('synchronous_commit'),
  'standbys', (
    select coalesce(json_agg(json_build_object(
             'name', application_name, 'state', state, 'sync_state', sync_state,
             'lag_bytes', (case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end - flush_lsn)::bigint,
             'lag_ms', (extract(epoch from flush_lag) * 1000)::bigint) order by application_name), '[]'::json)
      from pg_stat_replication)
)::text;
