-- Nothing is to be marked: whoever changes a queue always tells.
SELECT a.n, NULL::text AS key, 1 AS code
FROM unnest($1::text[]) WITH ORDINALITY AS a (key, n)
WHERE $2::bigint >= 0
