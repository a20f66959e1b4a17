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
