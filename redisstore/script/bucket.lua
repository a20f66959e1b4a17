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
	if cs == 0 and cn == 0 and cp == 0 then
		return 1
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
does[1], does[2] = bucket, bucket
