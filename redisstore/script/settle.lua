-- settles returns what carries out a correction.
settles = function()
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
