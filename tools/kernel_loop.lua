-- kernel_loop.lua: the inner loop of a kernel, from its disassembly: how much of it is matrix
-- products, and of CDNA a model of its speed.
--
--     kernel_loop.sm(code)                             -> {matrix, text}        sm_80, sm_90a
--     kernel_loop.gfx(code, target, version, folder)   -> {matrix, one_wave, text}
--
-- Who calls it: kernels.lua. The loop is the one with most matrix products; of its paths the one
-- that has all of them, loads (and on CDNA stores) whole chunks, and is the shortest of those: no
-- masks, no rescaling, no ends, no numbers that want care. Of that path:
--
--     matrix      products among the path's instructions, in percent
--     one wave    llvm-mca's model of a SIMD with this wave alone: share of cycles in which the
--                 matrix unit works
--     issue       the most that any number of waves could reach: products against slots to issue
--                 vector instructions (of exponentials and the like four), four clocks each
--     lds         128 bytes a clock of a CU against the products of its four SIMDs
--
-- A model is no measurement: latencies of memory, conflicts and clocks are not in it.

-- An instruction: {text, target: number of the one it may jump to, ends: none follows it, matrix: a
-- product, chunk: a load or store of 16 (8) bytes that a whole tile has}.

-- Gives each its target, from the names or addresses that `jump` has.
local function with_targets(list, number)
    for _, i in ipairs(list) do i.target = number[i.jump] end
    return list
end

-- Of attn_fwd, as nvdisasm -c prints it. An instruction that its own predicate cannot stop ends a
-- block for good. cp.async.bulk is UTMALDG, wgmma HGMMA.
local function read_sass(code)
    local list, number, inside = {}, {}, false
    for line in code:gmatch '[^\n]+' do
        local section, label = line:match '^%.text%.(%S+):', line:match '^(%.L%S*):'
        local text = line:match '^%s+/%*%x+%*/%s+(.-)%s*;'
        if section then inside = section == 'attn_fwd' end
        if inside and label then number[label] = #list + 1 end
        if inside and text then
            local op = text:gsub('^@%S+%s+', '')
            list[#list + 1] = {
                text = text,
                jump = op:find '^BRA' and op:match '`%((.-)%)',
                ends = op == text and
                    (op:find '^BRA `' or op:find '^EXIT' or op:find '^RET') ~= nil,
                matrix = op:find '^HMMA' or op:find '^HGMMA',
                chunk = op:find '^LDGSTS%S*%.128' or op:find '^UTMALDG',
            }
        end
    end
    return with_targets(list, number)
end

-- The same as llvm-objdump -d prints it.
local function read_gcn(code)
    local list, number, inside = {}, {}, false
    -- Where there are products of 16 bits, those of f32 are for unusual numbers.
    local wanted = code:find 'v_mfma_f32_32x32x8' and '^v_mfma_f32_32x32x8' or '^v_mfma'
    for line in code:gmatch '[^\n]+' do
        local name = line:match '^%x+ <(.-)>:'
        if name then inside = name == 'attn_fwd' end
        local text, address = line:match '^%s+(.-)%s*//%s*(%x+): [%x ]+'
        if inside and text then
            local at, words = tonumber(address, 16), tonumber(text:match '^s_c?branch%S* (%d+)$')
            list[#list + 1] = {
                text = text,
                jump = words and at + 4 + 4 * (words >= 32768 and words - 65536 or words),
                ends = text:find '^s_branch' or text:find '^s_endpgm',
                matrix = text:find(wanted),
                chunk = text:find '^buffer_load_dwordx' or text:find '^ds_write_b64' or
                    text:find '^ds_write_b128' or text:find '^v_exp',
            }
            number[at] = #list
        end
    end
    return with_targets(list, number)
end

-- Basic blocks: {from, to, next = {block numbers}}; weight: what a path should have, less its
-- length.
local function blocks_of(list)
    local starts = {[1] = true}
    for n, i in ipairs(list) do
        if i.target then starts[i.target] = true end
        if i.target or i.ends then starts[n + 1] = true end
    end
    local blocks, number = {}, {}
    for n, i in ipairs(list) do
        if starts[n] then
            blocks[#blocks + 1] = {from = n, weight = 0, matrix = 0, next = {}}
            number[n] = #blocks
        end
        local b = blocks[#blocks]
        b.to = n
        b.matrix = b.matrix + (i.matrix and 1 or 0)
        b.weight = b.weight - 1 + (i.matrix and 1000000 or i.chunk and 1000 or 0)
    end
    for k, b in ipairs(blocks) do
        local last = list[b.to]
        b.next[1] = number[last.target]
        if not last.ends and blocks[k + 1] then b.next[#b.next + 1] = k + 1 end
    end
    return blocks
end

-- The blocks that `step` reaches from those of `todo` without passing `wall`.
local function reached(step, todo, wall)
    local found = {}
    for _, k in ipairs(todo) do found[k] = true end
    while #todo > 0 do
        for _, n in ipairs(step(table.remove(todo))) do
            if not found[n] and n ~= wall then
                found[n] = true
                todo[#todo + 1] = n
            end
        end
    end
    return found
end

-- The natural loop with most products: blocks from which `head` is gone back to, where no way from
-- the entry leads to them but by `head`.
local function main_loop(blocks)
    local before, best = {}, {matrix = 0}
    for k in ipairs(blocks) do before[k] = {} end
    for k, b in ipairs(blocks) do
        for _, n in ipairs(b.next) do table.insert(before[n], k) end
    end
    for head in ipairs(blocks) do
        local around = head == 1 and {} or
            reached(function(k) return blocks[k].next end, {1}, head)
        local latches, matrix = {}, 0
        for _, k in ipairs(before[head]) do
            if not around[k] then latches[#latches + 1] = k end
        end
        local body = reached(function(k) return k == head and {} or before[k] end, latches)
        for k in pairs(body) do matrix = matrix + blocks[k].matrix end
        if matrix > best.matrix then best = {matrix = matrix, body = body, head = head} end
    end
    return best
end

-- The heaviest path from the loop's head back to it.
local function path_of(blocks, loop)
    local best, follow, busy = {}, {}, {}
    local function walk(k)
        if best[k] then return best[k] end
        busy[k] = true
        local most = -math.huge
        for _, n in ipairs(blocks[k].next) do
            local w = n == loop.head and 0 or
                loop.body[n] and not busy[n] and walk(n) or -math.huge
            if w > most then most, follow[k] = w, n end
        end
        busy[k] = nil
        best[k] = most + blocks[k].weight
        return best[k]
    end
    walk(loop.head)
    local path, k = {}, loop.head
    repeat
        path[#path + 1] = k
        k = follow[k]
    until k == loop.head
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

-- The instructions of the path, in order.
local function inner_loop(list)
    if not list[1] then return {} end
    local blocks, path = blocks_of(list), {}
    local loop = main_loop(blocks)
    for _, k in ipairs(loop.matrix > 0 and path_of(blocks, loop) or {}) do
        for n = blocks[k].from, blocks[k].to do path[#path + 1] = list[n] end
    end
    return path
end

local function count(path, what)
    local n = 0
    for _, i in ipairs(path) do n = n + (i[what] and 1 or 0) end
    return n
end

local function sm(code)
    local path = inner_loop(read_sass(code))
    local matrix = count(path, 'matrix')
    return matrix > 0 and {
        matrix = math.floor(1000 * matrix / #path) / 10,
        text = ('loop %d instructions, %d matrix'):format(#path, matrix),
    } or nil
end

local function gfx(code, target, version, folder)
    local path = inner_loop(read_gcn(code))
    local matrix, text, valu, lds, moves = count(path, 'matrix'), {}, 0, 0, 0
    if matrix == 0 then return nil end
    for _, i in ipairs(path) do
        local v, l = slots(i.text)
        valu, lds = valu + v, lds + l
        moves = moves + (i.text:find 'accvgpr' and 1 or 0)
        if not i.target then text[#text + 1] = i.text end
    end
    local name = folder .. '/loop.s'
    local file = assert(io.open(name, 'w'))
    file:write(table.concat(text, '\n'), '\n')
    file:close()
    local few, passes = mca(name, target, version, 4)
    local many = mca(name, target, version, 12)
    if not few or not many then
        return {text = ('loop %d instructions, %d matrix, %d moves; no llvm-mca-%s')
            :format(#path, matrix, moves, version)}
    end
    local one = 100 * passes * 8 / (many - few)
    return {
        one_wave = math.floor(one),
        matrix = math.floor(100 * matrix / #path),
        text = ('loop %d instructions, %d matrix, %d moves; model: matrix %d%% one wave, ' ..
            'at most %d%%, lds %d%%'):format(#path, matrix, moves, one,
            math.min(100, 100 * passes / valu), 400 * lds / passes),
    }
end

return {sm = sm, gfx = gfx}
