// Words by their index, and all ones where an index lies behind the last word.
//
// Layout: `selected[i]` = `words[index[i]]`, of `params.words` words.
// Workgroup: GROUP invocations, ITEMS indices each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> words: array<u32>;
var<storage, read> index: array<u32>;
var<storage, read_write> selected: array<u32>;

fn each(i: u32) {
    let at = load_index(i);
    var word = 0xffffffffu;
    if at < params.words { word = load_words(at); }
    store_selected(i, word);
}

#each params.count
