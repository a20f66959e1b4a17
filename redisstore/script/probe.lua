#!lua
-- All that the other scripts ask of a server, at a key that is gone afterwards: where
-- one of these is refused, so are charges.
local call, key = redis.call, KEYS[1]
call('TIME')
call('SET', key, 'x', 'EX', '1')
call('SETRANGE', key, '0', 'y')
call('GETRANGE', key, '0', '0')
call('GET', key)
call('MGET', key)
call('EXISTS', key)
call('EXPIRE', key, '1')
call('EXPIREAT', key, '9999999999')
call('DEL', key)
return {}
