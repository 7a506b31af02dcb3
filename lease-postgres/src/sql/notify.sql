SELECT set_config('synchronous_commit', 'off', true), pg_notify('{channel}', key)::text
FROM unnest($1::text[]) AS key
