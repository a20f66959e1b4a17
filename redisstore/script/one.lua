#!lua
-- What most calls are: one charge of one bucket, written under the same limit.
-- What goes in and comes out is as in head.lua, and the step is that of
-- bucket.lua; this one makes no function and no table on its way.
local given, ts, tn = struct.unpack('>ddd', ARGV[1])
local s, n
if given == 0 then
	local now = redis.call('TIME')
	s, n = tonumber(now[1]), tonumber(now[2]) * 1000
	if s > ts or s == ts and n >= tn or ts - s > 60 then
		ts, tn = s, n
	end
end
local a = ARGV[3]
local length = string.byte(a, 3)
local label = string.sub(a, 5, 4 + length)
local den, ss, sn, sp, cs, cn, cp = struct.unpack('>ddddddd', a, 5 + length)
local l
s, n, l = ts, tn, 0
local raw = redis.pcall('GET', KEYS[1])
if raw then
	if type(raw) == 'table' then
		return {ts, tn, 'X', 1}
	elseif string.sub(raw, 1, length) ~= label then
		return {ts, tn, 'C', raw}
	elseif #raw ~= length + 14 then
		return {ts, tn, 'X', 1}
	end
	local u, v, w = struct.unpack('>I5I4I5', raw, length + 1)
	local x = v % 1073741824
	u = u - 549755813888
	if u > ts or u == ts and x > tn then
		s, n, l = u, x, (v - x) * 1024 + w
	end
end
if (s - ts - ss) * 1e9 + (n - tn - sn) > (l + sp >= den and 1 or 0) then
	return {ts, tn, 'D', raw}
end
s, n, l = s + cs, n + cn, l - cp
if l < 0 then
	l, n = l + den, n + 1
end
if n >= 1e9 then
	n, s = n - 1e9, s + 1
end
local hi = math.floor(l / 1099511627776)
local how, when = 'PXAT', s * 1000 + math.ceil(n / 1e6)
if given == 1 then
	how, when = 'PX', (s - ts) * 1000 + math.ceil((n - tn) / 1e6) + 3600000
end
redis.call('SET', KEYS[1], label .. struct.pack('>I5I4I5', s + 549755813888, n + hi * 1073741824, l - hi * 1099511627776), how, string.format('%d', when))
return {ts, tn, 'A', raw}
