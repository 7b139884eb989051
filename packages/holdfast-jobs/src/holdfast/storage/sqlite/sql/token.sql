-- fragment: token_columns
-- The fields of `TokenRecord`, in their order.
id, name, role, hash, created_at, expires_at, revoked_at, last_used_at

-- name: token_create
-- Writes a token; only the hash of its secret comes here.
insert into holdfast_api_token (id, name, role, hash, created_at, expires_at)
values (:id, :name, :role, :hash, {now}, {now} + :lasts_ms * 1000)
returning {token_columns};

-- name: token_find
-- The token of a hash, if it is valid now.
select {token_columns}
  from holdfast_api_token
 where hash = :hash and revoked_at is null and (expires_at is null or expires_at > {now});

-- name: token_touch
-- Notes a use to the minute, so that reading pages does not write rows.
update holdfast_api_token set last_used_at = {now}
 where id = :id and (last_used_at is null or last_used_at < {now} - 60000000);

-- name: token_revoke
update holdfast_api_token set revoked_at = {now} where id = :id and revoked_at is null
returning {token_columns};

-- name: token_list
-- The newest first.
select {token_columns}
  from holdfast_api_token order by id desc limit :limit;

-- name: token_exist
select exists (select 1 from holdfast_api_token);
