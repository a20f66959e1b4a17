#!lua
-- What most calls are: charges of buckets, written under the same limits. The step
-- is that of bucket.lua, and what goes in and comes out is as in head.lua, but:
--
-- ARGV[2]: the requests. Those of one charge whose key no other has stand in runs: 0;
-- how often each comes; the first key, the last, and the ask, in two bytes each. Of the
-- others: how many charges; how often the request comes (one of several charges: once);
-- for each charge the key, plus 32768 if another request has that too, and the ask.
-- Reply: after the letters, if all states were written under the limits asked for,
-- one text of them all, with \255 for what was not there; otherwise nil, and then as
-- in head.lua.
--
-- This one makes no function, and no table for a charge. Seconds are here as they
-- are stored, from 2^39 on.
local call, byte, rep, take, pack, keys, asks = redis.call, string.byte, string.rep, struct.unpack, struct.pack, KEYS, ARGV
local given, ts, tn = take('>ddd', asks[1])
if given == 0 then
	local now = call('TIME')
	local s, n = tonumber(now[1]), tonumber(now[2]) * 1000
	if s > ts or s == ts and n >= tn then
		ts, tn = s, n
	end
end
local now = ts + 549755813888

-- What is to be written, of which key, and the second in which it is as new, true if the
-- key ends already when it should: with the four seconds, aligned to 1970, that this is
-- in. The tables are copies, so that they need not grow.
local raws = call('MGET', unpack(keys))
local K, V, E, writes = {unpack(raws)}, {unpack(raws)}, {unpack(raws)}, 0
local missing, foreign -- which were not there; whether any of those is of another type
local wrong -- keys of another type
local odd -- some state is none of the limit that was asked for
local before, place -- of keys that several requests have: what was read, and what is to be written

local program, at = {byte(asks[2], 1, -1)}, 1
local letters, told, nth = '', 0, 0 -- of so many requests, and how many there were
local loaded, was, own, form, length, den, ds, dn, dl, as, an, al = {} -- asks, and the one at hand
while program[at] do
	local count, times = program[at], program[at + 1]
	local run, letter, took, shared, from = count == 0, 'A', 0, false, writes
	local first, last, step, a = at + 2, at + 4 * count + 1, 4
	at = last + 1
	if run then
		first, last, a, step = program[at] * 256 + program[at + 1], program[at + 2] * 256 + program[at + 3], program[at + 4] * 256 + program[at + 5], 1
		at = at + 6
	end
	for i = first, last, step do
		local k = i
		if not run then
			k, a = program[i] * 256 + program[i + 1], program[i + 2] * 256 + program[i + 3]
			if k > 32767 then
				k, shared = k - 32768, true
			end
		end
		if a ~= was then
			local q = loaded[a]
			if not q then
				local ask = asks[2 + a]
				local size = byte(ask, 3)
				q = {string.sub(ask, 5, 4 + size), '>c' .. size .. 'I5I4I5', size + 14, take('>ddddddd', ask, 5 + size)}
				loaded[a] = q
			end
			was, own, form, length, den, dl, as, an, al = a, q[1], q[2], q[3], q[4], q[7], q[8], q[9], q[10]
			ds, dn = q[5] + now, q[6] + tn
		end
		local raw = raws[k]
		local s, n, l, by, u, v, w = now, tn, 0
		took = 0
		if not raw then
			by = own
			if not missing then
				missing = {}
				local names = {}
				for j = 1, #keys do
					if not raws[j] then
						missing[#missing + 1], names[#names + 1] = j, keys[j]
					end
				end
				foreign = call('EXISTS', unpack(names)) > 0
			end
			if foreign and call('EXISTS', keys[k]) == 1 then
				by, wrong = 1, wrong or {}
				wrong[k] = true
			end
		elseif #raw == length then
			by, u, v, w = take(form, raw)
			if v > 1073741823 then
				local x = v % 1073741824
				v, w = x, (v - x) * 1024 + w
			end
			if u > s or u == s and v > n then
				s, n, l = u, v, w
			end
		elseif string.sub(raw, 1, length - 14) == own then
			by, wrong = 1, wrong or {}
			wrong[k] = true
		end
		if by ~= own then
			odd = true
			if letter == 'A' or letter == 'D' then
				letter = wrong and wrong[k] and 'X' or 'C'
			end
		else
			while took < times and (s - ds) * 1e9 + (n - dn) <= (l + dl >= den and 1 or 0) do
				s, n, l, took = s + as, n + an, l - al, took + 1
				if l < 0 then
					l, n = l + den, n + 1
				end
				if n >= 1e9 then
					n, s = n - 1e9, s + 1
				end
			end
			if took == 0 then
				if letter == 'A' then
					letter = 'D'
				end
			else
				if l > 1099511627775 then
					local hi = math.floor(l / 1099511627776)
					n, l = n + hi * 1073741824, l - hi * 1099511627776
				end
				writes = writes + 1
				K[writes], V[writes], E[writes] = k, pack(form, own, s, n, l), (s == u or u and s - s % 4 == u - u % 4) and given == 0 or s
			end
		end
		if run or i + 3 == last then -- that was a whole request
			if letter ~= 'A' then
				took = 0
			end
			if took < times then
				letters = letters .. rep('A', nth - told + took) .. rep(letter == 'A' and 'D' or letter, times - took)
				told, letter = nth + times, run and 'A' or letter
			end
			nth = nth + times
		end
	end
	if letter ~= 'A' then
		writes = from
	elseif shared then
		before, place = before or {}, place or {}
		for i = from + 1, writes do
			local k = K[i]
			if before[k] == nil then
				before[k] = raws[k]
			end
			local earlier = place[k]
			if earlier then
				V[earlier], E[i] = false, E[i] == true and E[earlier] or E[i]
			end
			place[k], raws[k] = i, V[i]
		end
	end
end
letters = letters .. rep('A', nth - told)

local ends, text -- when a key does
for i = 1, writes do
	local v, s = V[i], E[i]
	if v and s == true then
		call('SETRANGE', keys[K[i]], '0', v)
	elseif v then
		s = given == 1 and s - now + 3601 or s - s % 4 - 549755813884
		if s ~= ends then
			ends, text = s, string.format('%d', s)
		end
		call('SET', keys[K[i]], v, given == 1 and 'EX' or 'EXAT', text)
	end
end

if before then
	for k, raw in pairs(before) do
		raws[k] = raw
	end
end
if odd then
	for k in pairs(wrong or {}) do
		raws[k] = 1
	end
	return {ts, tn, letters, false, unpack(raws)}
end
for i = 1, missing and #missing or 0 do
	raws[missing[i]] = '\255'
end
return {ts, tn, letters, table.concat(raws)}
