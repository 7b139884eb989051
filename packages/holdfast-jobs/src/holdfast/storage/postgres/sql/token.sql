-- fragment: token_columns
-- The fields of `TokenRecord`, in their order.
id::text, name, role, hash, holdfast.us(created_at), holdfast.us(expires_at), holdfast.us(revoked_at), holdfast.us(last_used_at)

-- name: token_create
-- Writes a token; only the hash of its secret comes here.
insert into holdfast.api_token (id, name, role, hash, created_at, expires_at)
values (:id::uuid, :name, :role, :hash, holdfast.moment(:now::bigint), holdfast.moment(:now::bigint) + :lasts_ms::bigint * interval '1 ms')
returning {token_columns};

-- name: token_find
-- The token of a hash, if it is valid now.
select {token_columns}
  from holdfast.api_token
 where hash = :hash and revoked_at is null and (expires_at is null or expires_at > holdfast.moment(:now::bigint));

-- name: token_touch
-- Notes a use to the minute, so that reading pages does not write rows.
update holdfast.api_token set last_used_at = holdfast.moment(:now::bigint)
 where id = :id::uuid and (last_used_at is null or last_used_at < holdfast.moment(:now::bigint) - interval '1 minute');

-- name: token_revoke
update holdfast.api_token set revoked_at = holdfast.moment(:now::bigint) where id = :id::uuid and revoked_at is null
returning {token_columns};

-- name: token_list
-- The newest first.
select {token_columns}
  from holdfast.api_token order by id desc limit :limit::integer;

-- name: token_exist
select exists (select 1 from holdfast.api_token);
