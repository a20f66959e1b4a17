-- Logs and slots: in one string stand a head of 64 bytes and then records, the
-- oldest first. The head: kind, period, units in view, the first record that
-- counts, how many there are with those before it, the number last given to a
-- slot, when it was last charged, label.
keeps = function()
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

	-- isHead reports whether h is a head, by its parts that few values may have:
	-- no text passes.
	local function isHead(h)
		local algorithm = byte(h) % 8
		return (algorithm == 4 or algorithm == 5) and byte(h) == byte(h, 41) and byte(h, 2) < 3 and byte(h, 7) < 60
	end

	-- Numbers of q, kinds 6 (log) and 7 (slots): what it holds for this ask, the
	-- least, how many more. Kinds 16 and 17 settle: delta, the instant of the
	-- charge or the slot's number and 0. Then of all: the period, when the limit
	-- was last changed, how many records there may be, how many changes there
	-- were, and of each the period before, when, and the period since.
	local function get(k, q)
		local o = open[k]
		if not o then
			o = {key = KEYS[k], slots = q.kind == 7 or q.kind == 17, pending = 0}
			open[k] = o
			local h = redis.pcall('GETRANGE', o.key, 0, HEAD - 1)
			if type(h) == 'table' then
				if not string.find(h.err, 'WRONGTYPE', 1, true) then
					error(h)
				end
				o.wrong = true
				return o
			end
			o.any = #h > 0
			if #h < HEAD or not isHead(h) or byte(h) % 8 ~= byte(q.label) % 8 then
				o.wrong = o.any
			else
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
			if o.wrong then
				return o
			elseif not o.used then
				o.used, o.first, o.count, o.last, o.clear = 0, 0, 0, random, o.any
			end
		end
		if o.wrong then
			return o
		end
		if o.ps and (o.ps ~= q[4] or o.pn ~= q[5]) then
			local ps, pn, s, n = o.ps, o.pn, ts, tn
			for i = 10, 9 + 6 * q[9], 6 do
				if q[i] == ps and q[i + 1] == pn and not before(ts, tn, q[i + 2], q[i + 3]) then
					expire(o, q[i + 2], q[i + 3], ps, pn)
					ps, pn = q[i + 4], q[i + 5]
				end
			end
			if before(q[6], q[7], s, n) then
				s, n = q[6], q[7]
			end
			expire(o, s, n, ps, pn)
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
			call(how == 'EX' and 'EXPIRE' or 'EXPIREAT', o.key, when)
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
	-- when it was last charged; -1 nanoseconds for none.
	local function tell(r, o, need)
		r[1], r[2], r[3], r[4], r[5], r[7], r[8] = o.used + o.pending, 0, -1, 0, -1, o.gs or 0, o.gn or -1
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
			local clash = o.wrong and 'X'
			if q.kind > 10 then
				if not clash then
					correct(o, q)
				end
				return clash or 1
			end
			local r = {o = o, q = q, tally = {0, 0, -1, 0, -1, 0, 0, -1}}
			kept[#kept + 1] = r
			if clash then
				r.clash = true
				r.tally[1] = o.wrong and -1 or 0
				return clash
			end
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
				if not taken and not r.clash and (r.q.trial or r.units) then
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
