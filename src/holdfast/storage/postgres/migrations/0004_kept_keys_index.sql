-- concurrently
-- Keys whose chains are gone, by when: what HOLDFAST_KEY_DAYS removes.
create index concurrently if not exists chain_key_gone on holdfast.chain_key (gone_at) where gone_at is not null;
