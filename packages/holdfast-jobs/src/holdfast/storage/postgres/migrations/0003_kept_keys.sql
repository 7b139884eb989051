-- A key that was claimed with scope `any` outlives its chain: `kept` says so, `gone_at` when retention took the chain.
alter table holdfast.chain_key
  add column kept boolean not null default false,
  add column gone_at timestamptz;
create index chain_key_gone on holdfast.chain_key (gone_at) where gone_at is not null;

-- What an attempt failed of is of interest while the next one is awaited, and not only when none is left.
create or replace view holdfast.outbox as
select id, type, input as payload, created_at, available_at, attempt as attempts, locked_by, locked_until,
       case state when 'running' then 'PROCESSING' when 'completed' then 'SENT' when 'failed' then 'FAILED'
                  when 'cancelled' then 'CANCELLED' else 'PENDING' end as status,
       case when finished_at is not null then error else (
         select a.error from holdfast.attempt a
          where a.job_id = v.id and a.error is not null order by a.fence desc, a.attempt desc limit 1) end as last_error
  from holdfast.jobs v;
