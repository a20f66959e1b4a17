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
	elseif n == 0 then
		return 1
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
	elseif units == 0 then
		return 1
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
	elseif n == 0 then
		return 1
	end
	put(k, q, 0, 0, used + n)
	return 1
end
does[3], does[4], does[5] = fixed, sliding, spent
