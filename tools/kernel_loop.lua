-- kernel_loop.lua: the inner loop of a CDNA kernel, from its disassembly, and a model of its speed.
--
--     kernel_loop(code, target, version, folder) -> {one_wave, matrix, text}
--
-- Who calls it: kernels.lua. The loop is the one with most matrix products; of its paths the one
-- that has all of them, loads and stores whole chunks, and is the shortest of those: no masks, no
-- rescaling, no ends, no numbers that want care. Of that path:
--
--     matrix      products among the path's instructions, in percent
--     one wave    llvm-mca's model of a SIMD with this wave alone: share of cycles in which the
--                 matrix unit works
--     issue       the most that any number of waves could reach: products against slots to issue
--                 vector instructions (of exponentials and the like four), four clocks each
--     lds         128 bytes a clock of a CU against the products of its four SIMDs
--
-- A model is no measurement: latencies of memory, conflicts and clocks are not in it.

-- Instructions of attn_fwd: text, address, bytes.
local function read(code)
    local list, inside = {}, false
    for line in code:gmatch '[^\n]+' do
        local name = line:match '^%x+ <(.-)>:'
        if name then inside = name == 'attn_fwd' end
        local text, address, words = line:match '^%s+(.-)%s*//%s*(%x+): ([%x ]+)'
        if inside and text then
            local bytes = 0
            for _ in words:gmatch '%x%x%x%x%x%x%x%x' do bytes = bytes + 4 end
            list[#list + 1] = {text = text, at = tonumber(address, 16), bytes = bytes}
        end
    end
    -- Where there are products of 16 bits, those of f32 are for unusual numbers.
    local wanted = code:find 'v_mfma_f32_32x32x8' and '^v_mfma_f32_32x32x8' or '^v_mfma'
    for _, i in ipairs(list) do i.matrix = i.text:find(wanted) end
    return list
end

local function target_of(i)
    local words = i.text:match '^s_c?branch%S* (%d+)$'
    if not words then return nil end
    local offset = tonumber(words)
    return i.at + 4 + 4 * (offset >= 32768 and offset - 65536 or offset)
end

-- Basic blocks: {from, to, next = {block numbers}}; weight: what a path should have, less its
-- length.
local function blocks_of(list)
    local starts = {[list[1].at] = true}
    for n, i in ipairs(list) do
        local target = target_of(i)
        if target then
            starts[target] = true
            if list[n + 1] then starts[list[n + 1].at] = true end
        end
    end
    local blocks, number = {}, {}
    for n, i in ipairs(list) do
        if starts[i.at] then
            blocks[#blocks + 1] = {from = n, weight = 0, matrix = 0, next = {}}
            number[i.at] = #blocks
        end
        local b = blocks[#blocks]
        b.to = n
        b.weight = b.weight - 1
        if i.matrix then
            b.matrix = b.matrix + 1
        elseif i.text:find '^buffer_load_dwordx' or i.text:find '^ds_write_b64' or
            i.text:find '^ds_write_b128' then
            b.weight = b.weight + 1000
        end
    end
    for k, b in ipairs(blocks) do
        local last = list[b.to]
        b.weight = b.weight + 1000000 * b.matrix
        b.next[1] = number[target_of(last) or 0]
        if not last.text:find '^s_branch' and not last.text:find '^s_endpgm' and blocks[k + 1] then
            b.next[#b.next + 1] = k + 1
        end
    end
    return blocks
end

-- The blocks from which `latch` is reached without passing `head`.
local function body_of(blocks, before, head, latch)
    local body, todo = {[head] = true, [latch] = true}, {latch}
    local matrix = blocks[head].matrix + (latch ~= head and blocks[latch].matrix or 0)
    while #todo > 0 do
        local b = table.remove(todo)
        for _, a in ipairs(b ~= head and before[b] or {}) do
            if not body[a] then
                body[a] = true
                matrix = matrix + blocks[a].matrix
                todo[#todo + 1] = a
            end
        end
    end
    return body, matrix
end

local function main_loop(blocks)
    local before, best = {}, {matrix = 0}
    for k in ipairs(blocks) do before[k] = {} end
    for k, b in ipairs(blocks) do
        for _, n in ipairs(b.next) do table.insert(before[n], k) end
    end
    for latch, b in ipairs(blocks) do
        for _, head in ipairs(b.next) do
            if head <= latch then
                local body, matrix = body_of(blocks, before, head, latch)
                if matrix > best.matrix then
                    best = {matrix = matrix, body = body, head = head, latch = latch}
                end
            end
        end
    end
    return best
end

-- The heaviest path from the loop's head to its end.
local function path_of(blocks, loop)
    local best, follow, busy = {}, {}, {}
    local function walk(k)
        if k == loop.latch then return blocks[k].weight end
        if best[k] then return best[k] end
        busy[k] = true
        local most = -math.huge
        for _, n in ipairs(blocks[k].next) do
            if loop.body[n] and n ~= loop.head and not busy[n] then
                local w = walk(n)
                if w > most then most, follow[k] = w, n end
            end
        end
        busy[k] = nil
        best[k] = most + blocks[k].weight
        return best[k]
    end
    walk(loop.head)
    local path, k = {}, loop.head
    while k do
        path[#path + 1] = k
        k = k ~= loop.latch and follow[k] or nil
    end
    return path
end

-- Four-clock slots that an instruction takes of the vector unit and of LDS.
local function slots(text)
    local slow = text:find '^v_exp' or text:find '^v_rcp' or text:find '^v_log'
    local valu = text:find '^v_' and (slow and 4 or 1) or 0
    local width = text:match '^ds_%a+_b(%d+)'
    return valu, width and tonumber(width) / 64 or text:find '^ds_' and 0.5 or 0
end

local function mca(path, target, version, rounds)
    local command = 'llvm-mca-%s -mtriple=amdgcn-amd-amdhsa -mcpu=%s -iterations=%d %s 2>&1'
    local pipe = assert(io.popen(command:format(version, target, rounds, path)))
    local out = pipe:read '*a'
    pipe:close()
    local cycles = tonumber(out:match 'Total Cycles: +(%d+)')
    local unit = out:match '%[(%d+)%] +%- HWXDL'
    local row = out:match 'Resource pressure per iteration:\n[^\n]*\n([^\n]*)'
    if not cycles or not unit or not row then return nil end
    local n = 0
    for value in row:gmatch '%S+' do
        if n == tonumber(unit) then return cycles, tonumber(value) end
        n = n + 1
    end
end

return function(code, target, version, folder)
    local list = read(code)
    local blocks = blocks_of(list)
    local loop = main_loop(blocks)
    if loop.matrix == 0 then return nil end
    local text, count, matrix, valu, lds, moves = {}, 0, 0, 0, 0, 0
    for _, k in ipairs(path_of(blocks, loop)) do
        for n = blocks[k].from, blocks[k].to do
            local v, l = slots(list[n].text)
            count, valu, lds = count + 1, valu + v, lds + l
            matrix = matrix + (list[n].matrix and 1 or 0)
            moves = moves + (list[n].text:find 'accvgpr' and 1 or 0)
            if not target_of(list[n]) then text[#text + 1] = list[n].text end
        end
    end
    local path = folder .. '/loop.s'
    local file = assert(io.open(path, 'w'))
    file:write(table.concat(text, '\n'), '\n')
    file:close()
    local few, passes = mca(path, target, version, 4)
    local many = mca(path, target, version, 12)
    if not few or not many then
        return {text = ('loop %d instructions, %d matrix, %d moves; no llvm-mca-%s')
            :format(count, matrix, moves, version)}
    end
    local one = 100 * passes * 8 / (many - few)
    return {
        one_wave = math.floor(one),
        matrix = math.floor(100 * matrix / count),
        text = ('loop %d instructions, %d matrix, %d moves; model: matrix %d%% one wave, ' ..
            'at most %d%%, lds %d%%'):format(count, matrix, moves, one,
            math.min(100, 100 * passes / valu), 400 * lds / passes),
    }
end
