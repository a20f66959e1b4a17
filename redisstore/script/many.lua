#!lua
-- What most calls of several requests are: charges of buckets, each of a key of
-- its own, written under the same limits. What goes in and comes out is as in
-- head.lua, and the step is that of bucket.lua; this one makes no function, and
-- no table for a charge.
local call, byte, sub, floor, ceil, format = redis.call, string.byte, string.sub, math.floor, math.ceil, string.format
local pack, take = struct.pack, struct.unpack
local given, ts, tn, plain = take('>dddd', ARGV[1])
if given == 0 then
	local now = call('TIME')
	local s, n = tonumber(now[1]), tonumber(now[2]) * 1000
	if s > ts or s == ts and n >= tn or ts - s > 60 then
		ts, tn = s, n
	end
end

-- The asks, each number in a table of its own.
local labels, forms, dens, rs, rn, rl, cs, cn, cl = {}, {}, {}, {}, {}, {}, {}, {}, {}
for i = 3, #ARGV do
	local a, j = ARGV[i], i - 2
	local length = byte(a, 3)
	labels[j], forms[j] = sub(a, 5, 4 + length), '>c' .. length .. 'I5I4I5'
	dens[j], rs[j], rn[j], rl[j], cs[j], cn[j], cl[j] = take('>ddddddd', a, 5 + length)
end

-- The states: what wrote it ('': new, false: another limit, 1: none of ours), when
-- it is full, not before now, and which ask wrote it anew. A state that is not
-- loaded is what was read; the tables are copies of that so that they need not grow.
local raws = call('MGET', unpack(KEYS))
local label, S, N, L, dirty = {unpack(raws)}, {unpack(raws)}, {unpack(raws)}, {unpack(raws)}, {unpack(raws)}
local ub, us, un, ul, ud = {}, {}, {}, {}, {} -- as they were before a request

-- What is not there may be of another type, which one call tells of all.
local missing, absent = {unpack(raws)}, 0
for k = 1, plain do
	if not raws[k] then
		absent = absent + 1
		missing[absent] = KEYS[k]
	end
end
local foreign = absent > 0 and call('EXISTS', unpack(missing, 1, absent)) > 0
local wrong -- keys of another type

local program, letters, at, nth = {byte(ARGV[2], 1, -1)}, {unpack(raws)}, 1, 0
local was, own, length, den, ds, dn, dl, as, an, al -- the ask at hand
while program[at] do
	local count, letter, first, last = program[at], 'A', at + 1, at + 4 * program[at] - 3
	for i = first, last, 4 do
		local k, a = program[i] * 256 + program[i + 1], program[i + 2] * 256 + program[i + 3]
		if a ~= was then
			was, own, den, ds, dn, dl, as, an, al = a, labels[a], dens[a], rs[a], rn[a], rl[a], cs[a], cn[a], cl[a]
			length = #own
		end
		local by, s, n, l = label[k], S[k], N[k], L[k]
		local raw = raws[k]
		if n == raw then
			s, n, l = ts, tn, 0
			if not raw then
				by = foreign and call('EXISTS', KEYS[k]) == 1 and 1 or ''
			elseif sub(raw, 1, length) ~= own then
				by = false
			elseif #raw ~= length + 14 then
				by = 1
			else
				by = own
				local t, v, w = take('>I5I4I5', raw, length + 1)
				local x = v % 1073741824
				t = t - 549755813888
				if t > ts or t == ts and x > tn then
					s, n, l = t, x, (v - x) * 1024 + w
				end
			end
			if by == 1 then
				wrong = wrong or {}
				wrong[#wrong + 1] = k
			end
			label[k], S[k], N[k], L[k] = by, s, n, l
		end
		if count > 1 then
			local j = (i + 3 - at) / 4
			ub[j], us[j], un[j], ul[j], ud[j] = by, s, n, l, dirty[k]
		end
		if by == 1 or by ~= own and by ~= '' then
			if letter == 'A' or letter == 'D' then
				letter = by == 1 and 'X' or 'C'
			end
		elseif (s - ts - ds) * 1e9 + (n - tn - dn) > (l + dl >= den and 1 or 0) then
			if letter == 'A' then
				letter = 'D'
			end
		else
			s, n, l = s + as, n + an, l - al
			if l < 0 then
				l, n = l + den, n + 1
			end
			if n >= 1e9 then
				n, s = n - 1e9, s + 1
			end
			label[k], S[k], N[k], L[k], dirty[k] = own, s, n, l, a
		end
	end
	if letter ~= 'A' and count > 1 then
		for i = first, last, 4 do
			local k, j = program[i] * 256 + program[i + 1], (i + 3 - at) / 4
			label[k], S[k], N[k], L[k], dirty[k] = ub[j], us[j], un[j], ul[j], ud[j]
		end
	end
	at, nth = last + 4, nth + 1
	letters[nth] = letter
end

for k = 1, plain do
	local a = dirty[k]
	if a ~= raws[k] then
		local s, n, l = S[k], N[k], L[k]
		local how, when = 'PXAT', s * 1000 + ceil(n / 1e6)
		if given == 1 then
			how, when = 'PX', (s - ts) * 1000 + ceil((n - tn) / 1e6) + 3600000
		end
		local hi = l < 1099511627776 and 0 or floor(l / 1099511627776)
		call('SET', KEYS[k], pack(forms[a], labels[a], s + 549755813888, n + hi * 1073741824, l - hi * 1099511627776), how, format('%d', when))
	end
end
for i = 1, wrong and #wrong or 0 do
	raws[wrong[i]] = 1
end
return {ts, tn, table.concat(letters, '', 1, nth), unpack(raws)}
