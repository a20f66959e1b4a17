#!lua
-- What most calls are: one charge of one bucket, written under the same limit. The step
-- is that of bucket.lua, the reply is as in head.lua, and when a key ends as in
-- many.lua. ARGV[1]: whether the instant is given; it; the numbers of the ask; its label.
local call, take, a, key = redis.call, struct.unpack, ARGV[1], KEYS[1]
local given, ts, tn, den, ds, dn, dl, as, an, al = take('>dddddddddd', a)
local own = string.sub(a, 81)
local s, n, l, u
if given == 0 then
	local now = call('TIME')
	s, n = now[1] + 0, now[2] * 1000
	if s > ts or s == ts and n >= tn then
		ts, tn = s, n
	end
end
s, n, l = ts + 549755813888, tn, 0
ds, dn = s + ds, n + dn
local raw = redis.pcall('GET', key)
if raw then
	if type(raw) == 'table' then
		return string.find(raw.err, 'WRONGTYPE', 1, true) and {ts, tn, 'X', 1} or raw
	elseif string.sub(raw, 1, #own) ~= own then
		return {ts, tn, 'C', raw}
	elseif #raw ~= #own + 14 then
		return {ts, tn, 'X', 1}
	end
	local v, w
	u, v, w = take('>I5I4I5', raw, #own + 1)
	if v > 1073741823 then
		local x = v % 1073741824
		v, w = x, (v - x) * 1024 + w
	end
	if u > s or u == s and v > n then
		s, n, l = u, v, w
	end
end
if (s - ds) * 1e9 + (n - dn) > (l + dl >= den and 1 or 0) then
	return {ts, tn, 'D', raw}
end
s, n, l = s + as, n + an, l - al
if l < 0 then
	l, n = l + den, n + 1
end
if n >= 1e9 then
	n, s = n - 1e9, s + 1
end
local v = n
if l > 1099511627775 then
	local hi = math.floor(l / 1099511627776)
	v, l = n + hi * 1073741824, l - hi * 1099511627776
end
v = own .. struct.pack('>I5I4I5', s, v, l)
local ends = s - s % 4
if given == 1 then
	call('SET', key, v, 'EX', s - ts - 549755810287)
elseif raw and ends == u - u % 4 then
	call('SETRANGE', key, '0', v)
else
	call('SET', key, v, 'EXAT', string.format('%d', ends - 549755813884))
end
return {ts, tn, 'A', raw}
