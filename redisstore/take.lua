#!lua
-- Decides requests, each all or none, on the states of many keys, at one
-- instant. Go knows the numbers of every limit exactly and says what comes of
-- an answer; what stands here only adds, carries and compares whole numbers
-- below 2^53. An instant is two of them: seconds since 1970 and nanoseconds.
--
-- KEYS: each key once; the first ones hold states of a few numbers, the rest
-- hold logs and slots.
-- ARGV[1]: whether the instant is given; it (or one that time must not go back
-- behind); how many keys are of the first kind; a random number.
-- ARGV[2]: the requests in order: how many charges, and for each which key and
-- which ask.
-- ARGV[3...]: the asks; see encode.go.
-- Reply: the instant; a letter a request; for each key of the first kind what
-- was there, 1 being something of another type; eight numbers for each charge of
-- a log or slots.
-- Letters: A all taken, D refused, C a state of another limit, W the window of
-- now is not known, X a key of another type. Nothing was taken but with A.

local call, byte, sub, floor, fmod = redis.call, string.byte, string.sub, math.floor, math.fmod
local pack, take = struct.pack, struct.unpack

local given, ts, tn, plain, random = take('>ddddd', ARGV[1])
if given == 0 then
	local t = call('TIME')
	local s, n = tonumber(t[1]), tonumber(t[2]) * 1000
	-- A clock that was set back stands still instead, for a minute at most.
	if s > ts or s == ts and n >= tn or ts - s > 60 then
		ts, tn = s, n
	end
end

local BIAS = 549755813888 -- of stored seconds: 2^39

-- An ask: kind, flags, length of the label, count of numbers; label; numbers.
local asks = {}
for i = 3, #ARGV do
	local a = ARGV[i]
	local kind, flags, length, numbers = byte(a, 1, 4)
	local q = {take('>' .. string.rep('d', numbers), a, 5 + length)}
	q.kind, q.label = kind, sub(a, 5, 4 + length)
	q.trial, q.strict, q.ttl = flags % 2 == 1, flags % 4 > 1, flags > 3 and numbers - 1
	if kind == 20 then -- how it ends, when, how long what is there has to be
		local from = q[numbers + 1]
		q.label, q.new = sub(a, from, from + q[3] - 1), sub(a, from + q[3])
	end
	asks[i - 2] = q
end

local raws = {}
if plain > 0 then
	raws = call('MGET', unpack(KEYS, 1, plain))
end

-- The states, taken apart: what wrote it (nil: not loaded, '': new, false:
-- another limit), up to four numbers, and when it was last charged.
local label, A, B, C, D, G, H = {}, {}, {}, {}, {}, {}, {}
local dirty, wrong = {}, {}
local undo -- of the request at hand, if it has more than one charge
local tallies = {}

local function before(s, n, t, m)
	return s < t or s == t and n < m
end

local function load(k, q)
	local raw, kind = raws[k], q.kind
	if not raw then
		label[k] = ''
		if call('EXISTS', KEYS[k]) == 1 then
			wrong[k] = true
		end
		return
	end
	local at = #q.label + 1
	if sub(raw, 1, at - 1) ~= q.label then
		label[k] = false
		return
	end
	label[k] = q.label
	local s, n, x, y
	if kind < 3 or kind == 11 or kind == 12 then
		s, n, y, at = take('>I5I4I5', raw, at)
		x = n % 1073741824
		A[k], B[k], C[k] = s - BIAS, x, (n - x) * 1024 + y
	elseif kind == 3 or kind == 13 then
		s, B[k], C[k], at = take('>I5I4I6', raw, at)
		A[k] = s - BIAS
	elseif kind == 4 or kind == 14 then
		s, B[k], C[k], D[k], at = take('>I5I4I4I4', raw, at)
		A[k] = s - BIAS
	else
		C[k], at = take('>I6', raw, at)
	end
	if q.ttl then
		s, n = take('>I5I4', raw, at)
		G[k], H[k] = s - BIAS, n
		s, n = G[k] + q[q.ttl], n + q[q.ttl + 1]
		if n >= 1e9 then
			s, n = s + 1, n - 1e9
		end
		if not before(ts, tn, s, n) then
			label[k] = ''
		end
	end
end

-- put writes the state of k, to be undone if the request is refused.
local function put(k, q, a, b, c, d)
	if undo then
		undo[#undo + 1] = {k, label[k], A[k], B[k], C[k], D[k], G[k], H[k], dirty[k]}
	end
	label[k], A[k], B[k], C[k], D[k], dirty[k] = q.label, a, b, c, d, q
	G[k], H[k] = ts, tn
end

-- granted returns how much of q is taken when free units are there, nil if it
-- is refused.
local function granted(q, free)
	if q[2] == 0 then
		return 0
	elseif free < q[2] then
		return nil
	end
	return q[2] + math.min(q[3], free - q[2])
end

-- window returns the start and the end of the window of now. From number i on
-- stand the period in nanoseconds if that is short, the period, and the windows
-- that Go expects: when the likely one starts, when it ends, when the next does.
local function window(q, i)
	if not before(ts, tn, q[i + 3], q[i + 4]) then
		if before(ts, tn, q[i + 5], q[i + 6]) then
			return q[i + 3], q[i + 4], q[i + 5], q[i + 6]
		elseif before(ts, tn, q[i + 7], q[i + 8]) then
			return q[i + 5], q[i + 6], q[i + 7], q[i + 8]
		end
	end
	local p = q[i]
	if p == 0 then
		return nil
	end
	local r = fmod(ts, p)
	for _ = 1, 3 do
		r = fmod(r * 1000, p)
	end
	r = fmod(r + fmod(tn, p), p)
	local n = fmod(r, 1e9)
	local s = ts - (r - n) / 1e9
	n = tn - n
	if n < 0 then
		s, n = s - 1, n + 1e9
	end
	local es, en = s + q[i + 1], n + q[i + 2]
	if en >= 1e9 then
		es, en = es + 1, en - 1e9
	end
	return s, n, es, en
end

-- bucket decides a bucket or queue: it is full at (A, B), less C parts of a
-- nanosecond. Numbers of q: parts in one; how far it may be from full before
-- the charge; the charge. With Min also: how many units more, and one unit.
local function bucket(k, q)
	local s, n, l = ts, tn, 0
	if label[k] ~= '' and before(ts, tn, A[k], B[k]) then
		s, n, l = A[k], B[k], C[k]
	end
	local den, ds, dn = q[1], s - ts, n - tn
	if (ds - q[2]) * 1e9 + (dn - q[3]) > (l + q[4] >= den and 1 or 0) then
		return 0
	end
	local cs, cn, cp = q[5], q[6], q[7]
	if q.kind == 2 then
		-- Of the units beyond the least, as many as fit: bit by bit.
		local spans, us, un, up = {}, q[10], q[11], q[12]
		local bits = 0
		while bits < 63 and us < 4e9 do
			spans[bits] = {us, un, up}
			bits = bits + 1
			us, un, up = us * 2, un * 2, up * 2
			if up >= den then
				up, un = up - den, un + 1
			end
			if un >= 1e9 then
				un, us = un - 1e9, us + 1
			end
		end
		local hi, lo, ms, mn, mp = 0, 0, 0, 0, 0
		for bit = bits - 1, 0, -1 do
			local h, w = hi, lo
			if bit >= 32 then
				h = h + 2 ^ (bit - 32)
			else
				w = w + 2 ^ bit
			end
			if h < q[8] or h == q[8] and w <= q[9] then
				local u = spans[bit]
				local s2, n2, p2 = ms + u[1], mn + u[2], mp + u[3]
				if p2 >= den then
					p2, n2 = p2 - den, n2 + 1
				end
				if n2 >= 1e9 then
					n2, s2 = n2 - 1e9, s2 + 1
				end
				local over = l + q[4] - p2
				if (ds + s2 - q[2]) * 1e9 + (dn + n2 - q[3]) <= (over >= den and 1 or over < 0 and -1 or 0) then
					hi, lo, ms, mn, mp = h, w, s2, n2, p2
				end
			end
		end
		cs, cn, cp = cs + ms, cn + mn, cp + mp
		if cp >= den then
			cp, cn = cp - den, cn + 1
		end
		if cn >= 1e9 then
			cn, cs = cn - 1e9, cs + 1
		end
	end
	s, n, l = s + cs, n + cn, l - cp
	if l < 0 then
		l, n = l + den, n + 1
	end
	if n >= 1e9 then
		n, s = n - 1e9, s + 1
	end
	put(k, q, s, n, l)
	return 1
end

-- fixed decides a fixed window that ends at (A, B) and counts C. Numbers of q:
-- what it holds for this ask, the least, how many more, the windows.
local function fixed(k, q)
	local used, es, en = 0, nil, nil
	if label[k] ~= '' and before(ts, tn, A[k], B[k]) then
		used, es, en = C[k], A[k], B[k]
	end
	local n = granted(q, q[1] - used)
	if not n then
		return 0
	end
	if used == 0 then
		local _
		_, _, es, en = window(q, 4)
		if not es then
			return 'W'
		end
	end
	put(k, q, es, en, used + n)
	return 1
end

-- times returns a·(s, n) in limbs of a million; a is below 2^32.
local function times(a, s, n)
	local n0 = fmod(n, 1e6)
	local ms = s * 1000 + (n - n0) / 1e6
	local m0 = fmod(ms, 1e6)
	local x = a * n0
	local lo = fmod(x, 1e6)
	x = a * m0 + (x - lo) / 1e6
	local mid = fmod(x, 1e6)
	return a * ((ms - m0) / 1e6) + (x - mid) / 1e6, mid, lo
end

local function above(a, s, n, b, t, m)
	local x2, x1, x0 = times(a, s, n)
	local y2, y1, y0 = times(b, t, m)
	return x2 > y2 or x2 == y2 and (x1 > y1 or x1 == y1 and x0 > y0)
end

-- counters returns the counts of the window of now and the one before, the
-- start of the first, and what of the second is still in view, rounded up.
local function counters(k, q, i)
	local s, n = window(q, i)
	if not s then
		return nil
	end
	local ps, pn = q[i + 1], q[i + 2]
	local cur, prev, is, iN = 0, 0, ts - s, tn - n
	if label[k] ~= '' then
		local ns, nn = A[k] + ps, B[k] + pn
		if nn >= 1e9 then
			ns, nn = ns + 1, nn - 1e9
		end
		if A[k] == s and B[k] == n then
			cur, prev = C[k], D[k]
		elseif ns == s and nn == n then
			prev = C[k]
		elseif before(s, n, A[k], B[k]) then -- time never flows back
			s, n, cur, prev, is, iN = A[k], B[k], C[k], D[k], 0, 0
		end
	end
	local faded = 0
	if prev > 0 then
		local vs, vn = ps - is, pn - iN
		if vn < 0 then
			vs, vn = vs - 1, vn + 1e9
		elseif vn >= 1e9 then
			vs, vn = vs + 1, vn - 1e9
		end
		faded = math.ceil(prev * ((vs * 1e9 + vn) / (ps * 1e9 + pn)))
		while faded > 0 and not above(prev, vs, vn, faded - 1, ps, pn) do
			faded = faded - 1
		end
		while above(prev, vs, vn, faded, ps, pn) do
			faded = faded + 1
		end
	end
	return cur, prev, s, n, faded
end

-- sliding decides a sliding counter: window started at (A, B), its count C, that
-- of the one before D. Numbers of q: as of fixed.
local function sliding(k, q)
	local cur, prev, s, n, faded = counters(k, q, 4)
	if not cur then
		return 'W'
	end
	local units = granted(q, q[1] - cur - faded)
	if not units then
		return 0
	end
	put(k, q, s, n, cur + units, prev)
	return 1
end

-- spent decides a bucket that earns nothing, of which C units are spent.
local function spent(k, q)
	local used = label[k] ~= '' and C[k] or 0
	local n = granted(q, q[1] - used)
	if not n then
		return 0
	end
	put(k, q, 0, 0, used + n)
	return 1
end

local settle -- made when first needed
local keeper

local function settles()
	local function drop(k)
		label[k], dirty[k] = '', dirty[k] or true
	end

	return function(k, q)
		local kind, fresh = q.kind, label[k] == ''
		if kind == 15 then -- delta
			local used = math.min((fresh and 0 or C[k]) + q[1], 4398046511103)
			if used > 0 then
				put(k, q, 0, 0, used)
			elseif not fresh then
				drop(k)
			end
			return 1
		elseif kind == 13 then -- delta, the end of the window that was charged, the windows
			local used, es, en = 0, 0, 0
			if not fresh and before(ts, tn, A[k], B[k]) then
				used, es, en = C[k], A[k], B[k]
			end
			if q[1] > 0 then
				if used == 0 then
					local _
					_, _, es, en = window(q, 4)
					if not es then
						return 'W'
					end
				end
				put(k, q, es, en, math.min(used + q[1], 4398046511103))
			elseif used > 0 and es == q[2] and en == q[3] then
				if used + q[1] > 0 then
					put(k, q, es, en, used + q[1])
				else
					drop(k)
				end
			end
			return 1
		elseif kind == 14 then -- the same with the start of the window that was charged
			local cur, prev, s, n = counters(k, q, 4)
			if not cur then
				return 'W'
			end
			local ns, nn = q[2] + q[5], q[3] + q[6]
			if nn >= 1e9 then
				ns, nn = ns + 1, nn - 1e9
			end
			if q[1] > 0 then
				cur = math.min(cur + q[1], 4294967295)
			elseif s == q[2] and n == q[3] then
				cur = math.max(0, cur + q[1])
			elseif s == ns and n == nn then
				prev = math.max(0, prev + q[1])
			end
			if cur > 0 or prev > 0 then
				put(k, q, s, n, cur, prev)
			elseif not fresh then
				drop(k)
			end
			return 1
		end
		-- Buckets: parts in one nanosecond, the span; for a give-back also
		-- whether that span is longer than can be told, and until when the
		-- charge counts, if that is known.
		local den, cs, cn, cp = q[1], q[2], q[3], q[4]
		local s, n, l = ts, tn, 0
		if not fresh and before(ts, tn, A[k], B[k]) then
			s, n, l = A[k], B[k], C[k]
		end
		if kind == 11 then
			s, n, l = s + cs, n + cn, l - cp
			if l < 0 then
				l, n = l + den, n + 1
			end
			if n >= 1e9 then
				n, s = n - 1e9, s + 1
			end
			if (s - ts) * 1e9 + (n - tn) > 4611686018427387903 then
				s, n, l = ts + 4611686018, tn + 427387903, 0
				if n >= 1e9 then
					n, s = n - 1e9, s + 1
				end
			end
			put(k, q, s, n, l)
			return 1
		end
		if not before(ts, tn, s, n) then
			return 1
		end
		if q[6] == 1 then
			local ls, ln = q[7] - ts, q[8] - tn
			if ln < 0 then
				ls, ln = ls - 1, ln + 1e9
			end
			if ls < 0 or ls == 0 and ln == 0 then
				return 1
			end
			if q[5] == 1 or before(ls, ln, cs, cn) or ls == cs and ln == cn and cp > 0 then
				if not before(q[7], q[8], s, n) then
					drop(k)
					return 1
				end
				cs, cn, cp = ls, ln - 1, 0
				if cn < 0 then
					cs, cn = cs - 1, cn + 1e9
				end
			end
		elseif q[5] == 1 then
			drop(k)
			return 1
		end
		s, n, l = s - cs, n - cn, l + cp
		if l >= den then
			l, n = l - den, n - 1
		end
		while n < 0 do
			n, s = n + 1e9, s - 1
		end
		if before(ts, tn, s, n) then
			put(k, q, s, n, l)
		else
			drop(k)
		end
		return 1
	end
end

-- ask decides one charge: 1 or 0, or the letter of what is in the way.
local function ask(k, q)
	local kind = q.kind
	if kind == 0 then
		if raws[k] == false and call('EXISTS', KEYS[k]) == 1 then
			wrong[k] = true
			return 'X'
		end
		return 1
	elseif kind == 20 then -- this was read before: let it be that
		if (raws[k] or '') ~= q.label or dirty[k] then
			return 'C'
		end
		if raws[k] == false and call('EXISTS', KEYS[k]) == 1 then
			wrong[k] = true
			return 'X'
		end
		if q[1] < 2 then
			if undo then
				undo[#undo + 1] = {k, label[k], A[k], B[k], C[k], D[k], G[k], H[k], dirty[k]}
			end
			dirty[k], label[k] = q, false
		end
		return 1
	end
	if label[k] == nil then
		load(k, q)
	end
	if wrong[k] then
		return 'X'
	elseif label[k] ~= q.label and (label[k] ~= '' or q.strict) then
		return 'C'
	end
	if kind < 3 then
		return bucket(k, q)
	elseif kind == 3 then
		return fixed(k, q)
	elseif kind == 4 then
		return sliding(k, q)
	elseif kind == 5 then
		return spent(k, q)
	end
	settle = settle or settles()
	local r = settle(k, q)
	if r == 1 and q.ttl and label[k] == q.label and dirty[k] ~= q then
		put(k, q, A[k], B[k], C[k], D[k]) -- touched is touched
	end
	return r
end

-- lapse returns when the key of a state that is new again at (s, n) ends, as
-- SET and PEXPIREAT want it. Under a clock that is given, that of the server
-- says nothing: it ends an hour after it could.
local function lapse(q, s, n)
	if q.ttl then
		local gs, gn = ts + q[q.ttl], tn + q[q.ttl + 1]
		if not s or before(gs, gn, s, n) then
			s, n = gs, gn
		end
	end
	if given == 1 then
		return 'PX', (s - ts) * 1000 + math.ceil((n - tn) / 1e6) + 3600000
	end
	return 'PXAT', s * 1000 + math.ceil(n / 1e6)
end

local function write(k, q)
	local kind = q.kind
	if kind == 20 then
		if q.new == '' then
			call('DEL', KEYS[k])
		elseif q[1] == 1 then
			call('SET', KEYS[k], q.new, 'PX', q[2])
		else
			call('SET', KEYS[k], q.new, 'PXAT', q[2])
		end
		return
	end
	local v, s, n
	if kind < 3 or kind > 10 and kind < 13 then
		local hi = floor(C[k] / 1099511627776)
		v = pack('>I5I4I5', A[k] + BIAS, B[k] + hi * 1073741824, C[k] - hi * 1099511627776)
		s, n = A[k], B[k]
	elseif kind == 3 or kind == 13 then
		v = pack('>I5I4I6', A[k] + BIAS, B[k], C[k])
		s, n = A[k], B[k]
	elseif kind == 4 or kind == 14 then
		v = pack('>I5I4I4I4', A[k] + BIAS, B[k], C[k], D[k])
		s, n = A[k] + q[5], B[k] + q[6]
		if C[k] > 0 then
			s, n = s + q[5], n + q[6]
		end
		while n >= 1e9 do
			s, n = s + 1, n - 1e9
		end
	else
		v = pack('>I6', C[k])
	end
	if q.ttl then
		v = v .. pack('>I5I4', G[k] + BIAS, H[k])
	end
	local how, when = lapse(q, s, n)
	call('SET', KEYS[k], q.label .. v, how, when)
end

-- Logs and slots: in one string stand a head of 64 bytes and then records, the
-- oldest first. The head: kind, period, units in view, the first record that
-- counts, how many there are with those before it, the number last given to a
-- slot, when it was last charged, label.
local function keeps()
	local open = {}
	local HEAD, READ = 64, 64

	local function size(o)
		return o.slots and 22 or 15
	end

	-- record returns the instant, the units and, of slots, the number of record i.
	local function record(o, i)
		if not o.chunk or i < o.from or i >= o.upto then
			local n = size(o)
			o.from, o.upto = i, math.min(o.count, i + READ)
			o.chunk = call('GETRANGE', o.key, HEAD + i * n, HEAD + o.upto * n - 1)
		end
		if o.slots then
			local id, s, n, units = take('>I7I5I4I6', o.chunk, (i - o.from) * 22 + 1)
			return s - BIAS, n, units, id
		end
		local s, n, units = take('>I5I4I6', o.chunk, (i - o.from) * 15 + 1)
		return s - BIAS, n, units
	end

	local function store(o, i, s, n, units, id)
		o.chunk = nil
		local v
		if o.slots then
			v = pack('>I7I5I4I6', id, s + BIAS, n, units)
		else
			v = pack('>I5I4I6', s + BIAS, n, units)
		end
		call('SETRANGE', o.key, HEAD + i * size(o), v)
	end

	-- expire leaves out what came at (s, n) less a period, or before.
	local function expire(o, s, n, ps, pn)
		s, n = s - ps, n - pn
		if n < 0 then
			s, n = s - 1, n + 1e9
		end
		while o.first < o.count do
			local rs, rn, units = record(o, o.first)
			if before(s, n, rs, rn) then
				return
			end
			o.first, o.used = o.first + 1, o.used - units
		end
	end

	-- Numbers of q, kinds 6 (log) and 7 (slots): what it holds for this ask, the
	-- least, how many more, the period, when the limit was last changed. Kinds 16
	-- and 17 settle: delta, the instant of the charge or the slot's number and 0,
	-- the period, when the limit was last changed.
	local function get(k, q)
		local o = open[k]
		if not o then
			o = {key = KEYS[k], slots = q.kind == 7 or q.kind == 17, pending = 0}
			open[k] = o
			local h = redis.pcall('GETRANGE', o.key, 0, HEAD - 1)
			if type(h) == 'table' then
				o.wrong = true
				return o
			end
			o.any = #h > 0
			if #h == HEAD and byte(h) % 8 == byte(q.label) % 8 then
				local _, gs, gn
				_, o.ps, o.pn, o.used, o.first, o.count, o.last, gs, gn = take('>BI5I4I6I4I4I7I5I4', h)
				o.gs, o.gn = gs - BIAS, gn
				if q.ttl then
					local s, n = o.gs + q[q.ttl], o.gn + q[q.ttl + 1]
					if n >= 1e9 then
						s, n = s + 1, n - 1e9
					end
					if not before(ts, tn, s, n) then
						o.used = nil
					end
				end
			end
			if not o.used then
				o.used, o.first, o.count, o.last, o.clear = 0, 0, 0, random, o.any
			end
		end
		if o.wrong then
			return o
		end
		if o.ps and (o.ps ~= q[4] or o.pn ~= q[5]) then
			local s, n = ts, tn
			if before(q[6], q[7], s, n) then
				s, n = q[6], q[7]
			end
			expire(o, s, n, o.ps, o.pn)
		end
		o.ps, o.pn = q[4], q[5]
		expire(o, ts, tn, o.ps, o.pn)
		return o
	end

	-- close writes the head, and when the key ends.
	local function close(o, q)
		while o.count > o.first do
			local _, _, units = record(o, o.count - 1)
			if units > 0 then
				break
			end
			o.count, o.chunk = o.count - 1, nil
		end
		if o.count == o.first then
			call('DEL', o.key)
			o.used, o.first, o.count, o.last, o.any, o.chunk = 0, 0, 0, random, false, nil
			return
		end
		local s, n = record(o, o.count - 1)
		local body
		if o.first > READ and o.first * 2 > o.count then
			body = call('GETRANGE', o.key, HEAD + o.first * size(o), HEAD + o.count * size(o) - 1)
			o.first, o.count, o.chunk = 0, o.count - o.first, nil
		end
		local head = pack('>BI5I4I6I4I4I7I5I4', byte(q.label), o.ps, o.pn, o.used, o.first, o.count, o.last, o.gs + BIAS, o.gn)
		head = head .. q.label .. string.rep('\0', HEAD - #head - #q.label)
		s, n = s + o.ps, n + o.pn
		if n >= 1e9 then
			s, n = s + 1, n - 1e9
		end
		local how, when = lapse(q, s, n)
		if body then
			call('SET', o.key, head .. body, how, when)
		else
			call('SETRANGE', o.key, 0, head)
			call(how == 'PX' and 'PEXPIRE' or 'PEXPIREAT', o.key, when)
		end
	end

	local function add(o, q, units)
		if o.clear then
			call('DEL', o.key)
			o.clear = nil
		end
		if not o.slots and o.count > o.first then
			local s, n, had = record(o, o.count - 1)
			-- Where even debt has no room left, the newest stays in view for longer.
			if not before(s, n, ts, tn) or o.count - o.first >= q[8] then
				if before(s, n, ts, tn) then
					s, n = ts, tn
				end
				store(o, o.count - 1, s, n, had + units)
				o.used = o.used + units
				return
			end
		end
		o.last = o.last + 1
		o.count, o.used = o.count + 1, o.used + units
		store(o, o.count - 1, ts, tn, units, o.last)
	end

	-- tell says how a charge finds what is kept: the units used, when the
	-- newest came, when that came which has to leave first, the number of a slot,
	-- when it was last charged; -1 for none.
	local function tell(r, o, need)
		r[1], r[2], r[3], r[4], r[5], r[7], r[8] = o.used + o.pending, -1, 0, -1, 0, o.gs or -1, o.gn or 0
		if o.pending > 0 then
			r[2], r[3] = ts, tn
		elseif o.count > o.first then
			r[2], r[3] = record(o, o.count - 1)
		end
		if need > 0 then
			local i, sum = o.first, 0
			while sum < need and i < o.count do
				local s, n, units = record(o, i)
				i, sum, r[4], r[5] = i + 1, sum + units, s, n
			end
			if sum < need then
				r[4], r[5] = ts, tn
			end
		end
	end

	local function judge(r)
		local o, q = r.o, r.q
		local free = q[1] - o.used - o.pending
		r.units = granted(q, free)
		tell(r.tally, o, r.units and 0 or q[2] - free)
	end

	local find = function(o, s, n, id)
		local from, to = o.first, o.count
		while from < to do
			local mid = floor((from + to) / 2)
			local rs, rn, _, rid = record(o, mid)
			if id and rid < id or not id and before(rs, rn, s, n) then
				from = mid + 1
			else
				to = mid
			end
		end
		if from < o.count then
			local rs, rn, units, rid = record(o, from)
			if id and rid == id or not id and rs == s and rn == n then
				return from, rs, rn, units, rid
			end
		end
	end

	local function correct(o, q)
		local delta = q[1]
		o.gs, o.gn = ts, tn
		if delta > 0 then
			delta = math.min(delta, math.max(0, 4398046511103 - o.used))
		end
		local i, s, n, units, id
		if o.slots then
			i, s, n, units, id = find(o, 0, 0, q[2])
		else
			i, s, n, units = find(o, q[2], q[3])
		end
		if i and units > 0 then -- none is left of what was given back
			local left = math.max(0, units + delta)
			store(o, i, s, n, left, id)
			o.used = o.used + left - units
		elseif delta > 0 and not o.slots then
			add(o, q, delta)
		elseif not q.ttl or o.count == o.first then
			return
		end
		close(o, q)
	end

	return {
		ask = function(k, q, kept)
			local o = get(k, q)
			if o.wrong then
				return 'X'
			elseif o.slots ~= (q.kind == 7 or q.kind == 17) then
				return 'C'
			end
			if q.kind > 10 then
				correct(o, q)
				return 1
			end
			local r = {o = o, q = q, tally = {0, -1, 0, -1, 0, 0, 0, 0}}
			kept[#kept + 1] = r
			judge(r)
			if r.units then
				o.pending = o.pending + r.units
			end
			return r.units and 1 or 0
		end,

		-- finish carries the charges of a request out, or tells what each would
		-- have found alone.
		finish = function(kept, taken)
			for i = 1, #kept do
				kept[i].o.pending = 0
			end
			for i = 1, #kept do
				local r = kept[i]
				if not taken and (r.q.trial or r.units) then
					judge(r)
				elseif taken and r.units and r.units > 0 then
					local o = r.o
					o.gs, o.gn = ts, tn
					add(o, r.q, r.units)
					if o.slots then
						r.tally[6] = o.last
					end
					close(o, r.q)
				end
			end
			for i = 1, #kept do
				for j = 1, 8 do
					tallies[#tallies + 1] = kept[i].tally[j]
				end
			end
		end,
	}
end

local program, letters, at = ARGV[2], {}, 1
while at <= #program do
	local count, letter = byte(program, at), 'A'
	at = at + 1
	undo = count > 1 and {} or nil
	local kept -- charges of logs and slots
	for _ = 1, count do
		local k1, k2, a1, a2 = byte(program, at, at + 3)
		local k, q, r = k1 * 256 + k2, asks[a1 * 256 + a2], nil
		at = at + 4
		if q.kind == 21 then -- only asked
			r = 0
		elseif k > plain then
			keeper = keeper or keeps()
			kept = kept or {}
			r = keeper.ask(k, q, kept)
		else
			r = ask(k, q)
		end
		if r == 0 then
			if not q.trial and letter == 'A' then
				letter = 'D'
			end
		elseif r ~= 1 and (letter == 'A' or letter == 'D') then
			letter = r
		end
	end
	if letter ~= 'A' and undo then
		for i = #undo, 1, -1 do
			local u = undo[i]
			local k = u[1]
			label[k], A[k], B[k], C[k], D[k], G[k], H[k], dirty[k] = u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9]
		end
	end
	if kept then
		keeper.finish(kept, letter == 'A')
	end
	letters[#letters + 1] = letter
end

for k = 1, plain do
	local q = dirty[k]
	if q == true or q and label[k] == '' then
		call('DEL', KEYS[k])
	elseif q then
		write(k, q)
	end
	if wrong[k] then
		raws[k] = 1
	end
end

local reply = {ts, tn, table.concat(letters)}
for k = 1, plain do
	reply[3 + k] = raws[k]
end
local from = 3 + plain
for i = 1, #tallies do
	reply[from + i] = tallies[i]
end
return reply
