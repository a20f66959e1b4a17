-- ask decides one charge: 1 or 0, or the letter of what is in the way.
local function ask(k, q)
	local kind = q.kind
	if kind == 0 then
		if raws[k] == false and foreign(k) then
			wrong[k] = true
			return 'X'
		end
		return 1
	elseif kind == 20 then -- this was read before: let it be that
		if (raws[k] or '') ~= q.label or dirty[k] then
			return 'C'
		end
		if raws[k] == false and foreign(k) then
			wrong[k] = true
			return 'X'
		end
		if q[1] < 2 then
			if undo then
				undo[#undo + 1] = {k, label[k], A[k], B[k], C[k], D[k], G[k], H[k], dirty[k]}
			end
			dirty[k], label[k] = q, nil
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
	if kind < 10 then
		return does[kind](k, q)
	end
	does.settle = does.settle or settles()
	local r = does.settle(k, q)
	if r == 1 and q.ttl and label[k] == q.label and dirty[k] ~= q then
		put(k, q, A[k], B[k], C[k], D[k]) -- touched is touched
	end
	return r
end

-- lapse returns when the key of a state that is new again at (s, n) ends, as
-- SET and EXPIREAT want it: with the four seconds, aligned to 1970, that this is in, so
-- that many.lua can tell from a state when its key ends. Under a clock that is given,
-- that of the server says nothing: it ends an hour after it could.
local function lapse(q, s, n)
	if q.ttl then
		local gs, gn = ts + q[q.ttl], tn + q[q.ttl + 1]
		if not s or before(gs, gn, s, n) then
			s, n = gs, gn
		end
	end
	if given == 1 then
		return 'EX', s - ts + 3601
	end
	return 'EXAT', s - s % 4 + 4
end

local function write(k, q)
	local kind = q.kind
	if kind == 20 then
		if q.new == '' then
			call('DEL', KEYS[k])
		elseif q[1] == 1 then
			call('SET', KEYS[k], q.new, 'EX', q[2])
		else
			call('SET', KEYS[k], q.new, 'EXAT', q[2])
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
