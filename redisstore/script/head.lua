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
-- ARGV[3...]: the asks; see ask.go.
-- Reply: the instant; a letter a request; for each key of the first kind what
-- was there, 1 being something of another type; eight numbers for each charge of
-- a log or slots, the first -1 if there is something of another type.
-- Letters: A all taken, D refused, C a state of another limit, W the window of
-- now is not known, X a key of another type. Nothing was taken but with A.

local call, byte, sub, floor, fmod = redis.call, string.byte, string.sub, math.floor, math.fmod
local pack, take = struct.pack, struct.unpack

local given, ts, tn, plain, random = take('>ddddd', ARGV[1])
if given == 0 then
	local t = call('TIME')
	local s, n = tonumber(t[1]), tonumber(t[2]) * 1000
	-- A clock that was set back stands still instead, as that of memory does.
	if s > ts or s == ts and n >= tn then
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

-- The states, taken apart: what wrote it (nil: not loaded, '': new), up to four numbers, and when it was last charged.
local label, A, B, C, D, G, H = {}, {}, {}, {}, {}, {}, {}
local dirty, wrong = {}, {}
local undo -- of the request at hand, if it has more than one charge
local tallies = {}

-- What decides a charge, or settles one, by the kind of the ask; and what is made
-- when it is first needed.
local does = {}
local settles, keeps, keeper

local function before(s, n, t, m)
	return s < t or s == t and n < m
end

-- foreign reports whether k, of which nothing was read, is of another type. One
-- call says of all keys whether any is.
local any
local function foreign(k)
	if any == nil then
		local missing = {}
		for i = 1, plain do
			if not raws[i] then
				missing[#missing + 1] = KEYS[i]
			end
		end
		any = call('EXISTS', unpack(missing)) > 0
	end
	return any and call('EXISTS', KEYS[k]) == 1
end

local function load(k, q)
	local raw, kind, by = raws[k], q.kind, dirty[k]
	if by then -- replaced by a request before
		raw = by.new ~= '' and by.new
	end
	if not raw then
		label[k], wrong[k] = '', not by and foreign(k)
		return
	end
	local at = #q.label + 1
	if sub(raw, 1, at - 1) ~= q.label then
		return
	end
	label[k] = q.label
	local size = 14
	if kind > 2 and kind ~= 11 and kind ~= 12 then
		size = kind % 10 == 3 and 15 or kind % 10 == 4 and 17 or 6
	end
	if #raw ~= at - 1 + size + (q.ttl and 9 or 0) then
		wrong[k] = true
		return
	end
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
	if free < q[2] then
		return nil
	end
	return q[2] + math.min(q[3], free - q[2])
end
